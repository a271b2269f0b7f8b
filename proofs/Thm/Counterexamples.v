(** Statements of the paper that are false as printed, or need what they do not say, each with a small counterexample. *)
From mathcomp Require Import all_ssreflect all_fingroup zmodp zify.
From Redistrib Require Import Spec.Sequences Spec.Types Spec.Collectives Thm.Arith Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** ** Lemma 4.2: "lexicographically below" *)
Definition lex_below r (o s : shape r) : Prop := exists i, o i < s i /\ forall j : 'I_r, j < i -> o j = s j.

(** [2{}2, 2{}2]: the offset (0, 2) is lexicographically below (2, 2), and no device holds it. *)
Theorem lemma_4_2_lexicographic_is_false (sz : 'I_0 -> nat) :
  exists (v : ty 0 2) (o : shape 2),
    [/\ wf sz v, lex_below o (glob v), forall i, loc v i %| o i & ~ exists h : dev sz, T v h = o].
Proof.
pose two : shape 2 := [ffun=> 2]; pose v := Ty two [ffun=> [::]] two : ty 0 2.
exists v, [ffun i : 'I_2 => if i == ord0 then 0 else 2]; split.
- apply: wfI => /= [i|i|[]] //; rewrite !ffunE // /Types.span big_nil //.
- by exists ord0; rewrite !ffunE.
- by move=> i; rewrite !ffunE; case: eqP.
by move=> [h /ffunP /(_ (lift ord0 ord0))]; rewrite !ffunE.
Qed.

(** ** Lemma 4.1 needs a positive size: 0 is an offset of [0{}0], and not a multiple of 0 below 0. *)
Theorem lemma_4_1_needs_positive_size n (sz : 'I_n -> nat) (h : dev sz) :
  exists k, doff 0 [::] h = k /\ ~~ ((0 %| k) && (k < 0)).
Proof. by exists 0. Qed.

(** ** T-Permute by local type alone would type [2{x}4] -> [2{}2], which no permutation of tiles does. *)
Theorem permute_needs_global_types (sz : 'I_1 -> nat) : sz ord0 = 2 ->
  exists v1 v2 : ty 1 1, [/\ wf sz v1, wf sz v2, loc v1 = loc v2 & ~ equiv sz v1 v2].
Proof.
move=> s2; have sz0 a : 0 < sz a by rewrite ord1 s2.
pose two : shape 1 := [ffun=> 2]; pose four : shape 1 := [ffun=> 4].
exists (Ty two [ffun=> [:: ord0]] four), (Ty two [ffun=> [::]] two).
have w1 : wf sz (Ty two [ffun=> [:: ord0]] four).
  apply: wfI => /= [i|i|a]; rewrite ?ffunE //= ?ffunE ?/Types.span ?big_seq1 ?s2 //.
  by rewrite /occurrences big_ord1 /= ffunE /= addn0; case: eqP.
have w2 : wf sz (Ty two [ffun=> [::]] two).
  apply: wfI => /= [i|i|a]; rewrite ?ffunE //= ?ffunE ?/Types.span ?big_nil //.
  by rewrite /occurrences big_ord1 /= ffunE.
split=> // /equiv_sym [p E].
have [h Eh] : exists h : dev sz, T (Ty two [ffun=> [:: ord0]] four) h = two.
  by apply/(lemma_4_2 sz0 w1) => i; rewrite /= !ffunE.
have im : exists h : dev sz, T (Ty two [ffun=> [::]] two) h = two by exists (p h); rewrite -E.
by have := (lemma_4_2 sz0 w2 two).1 im ord0; rewrite /= !ffunE.
Qed.

(** ** Primality is necessary for the memory bound

    On the mesh {y:6, x:4} every sequence from [2{y}12] to [3{x}12] has a tile above 3. *)
Section Primality.
Definition six_four (a : 'I_2) : nat := if a == ord0 then 6 else 4.
Definition twelve : shape 1 := [ffun=> 12].
Definition by_y : ty 2 1 := Ty [ffun=> 2] [ffun=> [:: ord0]] twelve.
Definition by_x : ty 2 1 := Ty [ffun=> 3] [ffun=> [:: lift ord0 ord0]] twelve.

Lemma local_sizes v : wf six_four v -> glob v = twelve -> loc v ord0 \in [:: 2; 3; 12].
Proof.
move=> w G; have := wf_cut ord0 w; rewrite G ffunE span_count big_ord_recl big_ord1.
have C a : count_mem a (axs v ord0) <= 1 by apply: leq_trans (wf_affine a w); apply: count_le_occ.
have := C ord0; have := C (lift ord0 ord0).
case: (count_mem _ _) => [|[|//]] _; case: (count_mem _ _) => [|[|//]] _; rewrite /six_four /=;
  by move: (loc v ord0) => m; rewrite ?expn0 ?expn1 !inE; lia.
Qed.

Lemma small_steps_stay w k v v' : wf six_four v -> glob v = twelve -> typed six_four w k v v' ->
  loc v ord0 = 2 -> loc v' ord0 <= 3 -> loc v' ord0 = 2.
Proof.
move=> wv G t L L'; have [wv' G'] := preservation wv t.
have := local_sizes wv'; rewrite G' G => /(_ erefl); rewrite !inE => /or3P [/eqP // | /eqP E | /eqP E]; last by lia.
case: k t => /= [[i [xs [_ [c [_ _ El Ev]]]]] | [i [j [xs [_ [ys [c [ij _ _ _]]]]]]] | [_ _ El _] | [i [xs [_ [ys [_ Ev]]]]]].
- by move: E; rewrite Ev /= => E; move: L; rewrite El ffunE (ord1 i) eqxx E; lia.
- by move: ij; rewrite (ord1 i) (ord1 j) eqxx.
- by rewrite -El.
by move: E; rewrite Ev /= ffunE (ord1 i) eqxx L; lia.
Qed.

Theorem primality_is_necessary w p : trun six_four w by_y p by_x -> 3 < theight by_y p.
Proof.
have size1 (v : ty 2 1) : tsize v = loc v ord0 by rewrite /tsize /vol big_ord1.
suff H (v : ty 2 1) : wf six_four v -> glob v = twelve -> loc v ord0 = 2 -> trun six_four w v p by_x -> 3 < theight v p.
  apply: H; rewrite /by_y //= ?ffunE //; apply: wfI => /= [i|i|a]; rewrite ?ffunE //= ?ffunE.
    by rewrite /Types.span big_seq1.
  by rewrite /occurrences big_ord1 /= ffunE /= addn0; case: eqP.
elim: p v => [|[k x] p IH] v wv G L /=; first by move=> E; move: L; rewrite E ffunE.
move=> [t R]; rewrite leqNgt ltnS geq_max negb_and -!ltnNge; apply/orP; right.
have [wx gx] := preservation wv t; case: (leqP (loc x ord0) 3) => le.
  apply: IH R => //; first by rewrite gx.
  exact: small_steps_stay t L le.
by apply: leq_trans (height_ge _ _ _); rewrite size1.
Qed.
End Primality.
