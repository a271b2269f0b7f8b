(** What types mean: Lemmas 4.1, 4.2, 5.1 and the converse of 5.1. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Types Thm.Arith.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** Two maps that take every value equally often differ by a permutation of their domain. *)
Lemma perm_of_counts (D : finType) (A : eqType) (f g : D -> A) :
  (forall a, count (fun d => f d == a) (enum D) = count (fun d => g d == a) (enum D)) ->
  exists p : {perm D}, forall d, g d = f (p d).
Proof.
move=> E.
have /tuple_permP [q /= Eq] : perm_eq (codom_tuple g) (codom_tuple f).
  apply/seq.permP=> P; rewrite /= /codom.
  have : perm_eq [seq g d | d <- enum D] [seq f d | d <- enum D].
    by apply/allP=> a _; rewrite /= (count_map g) (count_map f); apply/eqP; exact: (esym (E a)).
  by move/seq.permP; apply.
pose h d := enum_val (q (enum_rank d)).
have h_inj : injective h by move=> x y /enum_val_inj /perm_inj /enum_rank_inj.
exists (perm h_inj) => d; rewrite permE /h.
have := congr1 (fun l => nth (g d) l (enum_rank d)) Eq; rewrite /= (nth_map (enum_rank d)) ?size_enum_ord //.
rewrite nth_ord_enum /codom (nth_map d) -?cardE // nth_enum_rank => ->.
by rewrite (tnth_nth (g d)) /= /codom (nth_map d) -?cardE ?ltn_ord // -enum_val_nth.
Qed.

Section Types.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_gt0 : forall a, 0 < sz a.
Local Notation dev := (dev sz).
Local Notation ty := (ty n r).
Local Notation wf := (wf sz).
Local Notation span := (span sz).
Implicit Types (v : ty) (xs ys l : seq 'I_n) (h : dev) (a : 'I_n) (i j : 'I_r).

Lemma span_cons a xs : span (a :: xs) = sz a * span xs.
Proof. exact: big_cons. Qed.

Lemma span_cat xs ys : span (xs ++ ys) = span xs * span ys.
Proof. exact: big_cat. Qed.

Lemma span_gt0 xs : 0 < span xs.
Proof. by elim: xs => [|a xs IH]; rewrite /Types.span ?big_nil ?big_cons // muln_gt0 sz_gt0. Qed.

(** ** Devices *)
Lemma dev0 : dev.
Proof. by exact: [ffun a => Ordinal (sz_gt0 a)]. Defined.

(** One coordinate changed. *)
Definition setc h a (k : nat) : dev :=
  [ffun b => if b == a then insubd (h b) k else h b].

Lemma setc_same h a k : k < sz a -> setc h a k a = k :> nat.
Proof. by move=> ka; rewrite ffunE eqxx insubdK. Qed.

Lemma setc_other h a k b : b != a -> setc h a k b = h b.
Proof. by move=> ba; rewrite ffunE (negPf ba). Qed.

Lemma card_dev : #|{: dev}| = ndev sz.
Proof. by rewrite card_dep_ffun foldrE big_map big_enum /=; apply: eq_bigr => a _; rewrite card_ord. Qed.

(** ** Offsets along one dimension *)
Lemma doff_dvd c xs h : c %| doff c xs h.
Proof.
elim: xs c => [|a xs IH] c /=; first by rewrite dvdn0.
rewrite dvdn_addr ?dvdn_mulr //; apply: dvdn_trans (IH (c * sz a)).
by rewrite dvdn_mulr.
Qed.

Lemma doff_lt c xs h : 0 < c -> doff c xs h + c <= c * span xs.
Proof.
elim: xs c => [|a xs IH] c c0 /=; first by rewrite /Types.span big_nil muln1 add0n.
rewrite span_cons mulnA; have ca : 0 < c * sz a by rewrite muln_gt0 c0 sz_gt0.
apply: leq_trans _ (IH _ ca); have := ltn_ord (h a); move: (h a : nat) => k ka.
have : c * k.+1 <= c * sz a by rewrite leq_mul2l ka orbT.
rewrite mulnS; lia.
Qed.

Lemma doff_eq c xs h h' : 0 < c -> doff c xs h = doff c xs h' <-> (forall a, a \in xs -> h a = h' a).
Proof.
move=> c0; split; last first.
  elim: xs c {c0} => [|a xs IH] c //= E; rewrite E ?mem_head // IH // => b bx; apply: E.
  by rewrite inE bx orbT.
elim: xs c c0 => [|a xs IH] c c0 //= E.
have ca : 0 < c * sz a by rewrite muln_gt0 c0 sz_gt0.
have /dvdnP [q Eq] := doff_dvd (c * sz a) xs h; have /dvdnP [q' Eq'] := doff_dvd (c * sz a) xs h'.
have Ea : h a = h' a.
  apply: val_inj => /=; move: E; rewrite Eq Eq' => /(congr1 (fun x => x %/ c %% sz a)).
  rewrite !(mulnC c (sz a)) !mulnA !(mulnC c) -!mulnDl !mulnK // ![_ + q * _]addnC ![_ + q' * _]addnC !modnMDl.
  by rewrite !modn_small.
move=> b; rewrite inE => /orP [/eqP -> //|]; apply: IH ca _ b.
by move: E; rewrite Ea => /addnI.
Qed.

(** Every multiple of the tile below the size is an offset: the mixed-radix digits. *)
Lemma doff_surj c xs k h : 0 < c -> uniq xs -> k < span xs ->
  exists h', doff c xs h' = c * k /\ forall a, a \notin xs -> h' a = h a.
Proof.
elim: xs c k h => [|a xs IH] c k h c0 /=.
  by rewrite /Types.span big_nil ltnS leqn0 => _ /eqP ->; exists h; rewrite muln0.
move=> /andP [ax ux]; rewrite span_cons => kx.
have ca : 0 < c * sz a by rewrite muln_gt0 c0 sz_gt0.
have kd : k %/ sz a < span xs by rewrite ltn_divLR // mulnC.
have [h' [E O]] := IH (c * sz a) (k %/ sz a) h ca ux kd.
exists (setc h' a (k %% sz a)); split.
  rewrite setc_same ?ltn_mod //.
  have -> : doff (c * sz a) xs (setc h' a (k %% sz a)) = doff (c * sz a) xs h'.
    by apply/doff_eq=> // b bx; rewrite setc_other //; apply: contraNneq ax => <-.
  by rewrite E -mulnA -mulnDr addnC [sz a * _]mulnC -divn_eq.
move=> b; rewrite inE negb_or => /andP [ba bx]; rewrite setc_other //; exact: O.
Qed.

(** Lemma 4.1. *)
Theorem lemma_4_1 c xs s : 0 < s -> c * span xs = s -> uniq xs ->
  forall k, (exists h, doff c xs h = k) <-> (c %| k) && (k < s).
Proof.
move=> s0 E ux k; have c0 : 0 < c by move: s0; rewrite -E muln_gt0 => /andP [].
split=> [[h <-] | /andP [/dvdnP [q ->]]].
  by rewrite doff_dvd -E; have := doff_lt xs h c0; lia.
rewrite -E [q * c]mulnC ltn_pmul2l // => qx.
by have [h [Eh _]] := doff_surj dev0 c0 ux qx; exists h.
Qed.

(** ** Well-formed types *)
Lemma wf_glob v i : wf v -> 0 < glob v i.
Proof. by move=> /andP [/forallP /(_ i) /andP []]. Qed.

Lemma wf_cut v i : wf v -> loc v i * span (axs v i) = glob v i.
Proof. by move=> /andP [/forallP /(_ i) /andP [_ /eqP]]. Qed.

Lemma wf_loc v i : wf v -> 0 < loc v i.
Proof. by move=> w; have := wf_glob i w; rewrite -(wf_cut i w) muln_gt0 => /andP []. Qed.

Lemma wf_affine v a : wf v -> occurrences v a <= 1.
Proof. by move=> /andP [_ /forallP]. Qed.



Lemma count_le_occ v i a : count_mem a (axs v i) <= occurrences v a.
Proof. by rewrite /occurrences (bigD1 i) //= leq_addr. Qed.

Lemma uniq_counts l : (forall a, count_mem a l <= 1) -> uniq l.
Proof.
elim: l => //= a l IH C; rewrite IH ?andbT => [|b]; last by apply: leq_trans (C b); rewrite leq_addl.
by have := C a; rewrite eqxx add1n ltnS leqn0 -has_pred1 has_count lt0n negbK.
Qed.

Lemma wf_uniq v i : wf v -> uniq (axs v i).
Proof. by move=> w; apply: uniq_counts => a; apply: leq_trans (count_le_occ v i a) (wf_affine a w). Qed.

Lemma wf_disjoint v i j a : wf v -> a \in axs v i -> a \in axs v j -> i = j.
Proof.
move=> w ai aj; apply/eqP; apply/negPn/negP => ij.
have := wf_affine a w; rewrite /occurrences (bigD1 i) //= (bigD1 j) 1?eq_sym //=.
have : 0 < count_mem a (axs v i) by rewrite -has_count has_pred1.
have : 0 < count_mem a (axs v j) by rewrite -has_count has_pred1.
move: (count_mem a (axs v i)) (count_mem a (axs v j)) (\sum_(_ < _ | _) _) => x y z.
lia.
Qed.

Lemma freeP v a : reflect (forall i, a \notin axs v i) (free v a).
Proof.
rewrite /free /occurrences sum_nat_eq0; apply: (iffP forallP) => H i; have := H i.
  by rewrite implyTb -leqn0 leqNgt -has_count has_pred1.
by rewrite implyTb -leqn0 leqNgt -has_count has_pred1.
Qed.

(** Lemma 4.2, componentwise: the image consists of the multiples of the tile below the global shape. *)
Theorem lemma_4_2 v : wf v ->
  forall o : shape r, (exists h, T v h = o) <-> (forall i, (loc v i %| o i) && (o i < glob v i)).
Proof.
move=> w o; split=> [[h <-] i | O].
  rewrite ffunE doff_dvd -(wf_cut i w).
  by have := doff_lt (axs v i) h (wf_loc i w); have := wf_loc i w; lia.
suff [h H] : exists h, forall i, i \in enum 'I_r -> doff (loc v i) (axs v i) h = o i.
  by exists h; apply/ffunP=> i; rewrite ffunE H ?mem_enum.
elim: (enum 'I_r) (enum_uniq 'I_r) => [|i l IH] /=; first by exists dev0.
move=> /andP [il /IH [h H]].
have /andP [/dvdnP [q Eq] lt] := O i.
have qx : q < span (axs v i).
  by move: lt; rewrite Eq -(wf_cut i w) mulnC ltn_pmul2l // (wf_loc i w).
have [h' [E O']] := doff_surj h (wf_loc i w) (wf_uniq i w) qx.
exists h' => j; rewrite inE => /orP [/eqP -> | jl]; first by rewrite E Eq mulnC.
rewrite -(H j jl); apply/doff_eq; first exact: wf_loc.
move=> a aj; apply: O'; apply: contra il => ai.
by rewrite (wf_disjoint w ai aj).
Qed.

(** ** Fibres: every tile is held by equally many devices *)
Lemma T_eq v h h' : wf v -> T v h = T v h' <-> (forall a, ~~ free v a -> h a = h' a).
Proof.
move=> w; split=> [/ffunP E a fa | E].
  have /existsP [i ai] : [exists i, a \in axs v i].
    by apply: contraR fa; rewrite negb_exists => /forallP H; apply/freeP.
  by have := E i; rewrite !ffunE => /(doff_eq _ _ _ (wf_loc i w)); apply.
apply/ffunP=> i; rewrite !ffunE; apply/doff_eq; first exact: wf_loc.
by move=> a ai; apply: E; apply/negP => /freeP /(_ i); rewrite ai.
Qed.

Definition copies v := \prod_(a | free v a) sz a.

Lemma card_fibre v h0 : wf v -> #|[pred h : dev | T v h == T v h0]| = copies v.
Proof.
move=> w; pose F a : pred 'I_(sz a) := if free v a then predT else pred1 (h0 a).
rewrite (eq_card (B := family F : simpl_pred dev)); last first.
  move=> h; rewrite unfold_in /=; apply/eqP/familyP => [E a | E].
    rewrite /F unfold_in; case: ifPn => // /(T_eq h h0 w).1; rewrite E => /(_ erefl) ->.
    by rewrite /= eqxx.
  by apply/(T_eq h h0 w) => a fa; have := E a; rewrite /F (negPf fa) => /eqP.
rewrite card_family foldrE big_map big_enum /= /copies [RHS]big_mkcond /=; apply: eq_bigr => a _.
by rewrite /F; case: ifP => _; rewrite ?card_ord ?card1.
Qed.

(** The cut axes and the free axes together make the mesh. *)
Lemma span_count xs : span xs = \prod_a sz a ^ count_mem a xs.
Proof.
elim: xs => [|b xs IH]; first by rewrite /Types.span big_nil big1 // => a _; rewrite expn0.
rewrite span_cons IH (bigD1 b) //= [in RHS](bigD1 b) //= eqxx expnD expn1 mulnA; congr (_ * _).
by apply: eq_bigr => a ab; rewrite eq_sym (negPf ab).
Qed.

Lemma spans v : \prod_i span (axs v i) = \prod_a sz a ^ occurrences v a.
Proof.
rewrite (eq_bigr (fun i => \prod_a sz a ^ count_mem a (axs v i))) => [|i _]; last exact: span_count.
by rewrite exchange_big; apply: eq_bigr => a _; rewrite /occurrences expn_sum.
Qed.

Lemma cut_copies v : wf v -> (\prod_i span (axs v i)) * copies v = ndev sz.
Proof.
move=> w; rewrite spans /copies [X in _ * X]big_mkcond -big_split /=; apply: eq_bigr => a _.
by have := wf_affine a w; rewrite /free; case: (occurrences v a) => [|[|]]; rewrite ?expn0 ?expn1 ?mul1n ?muln1.
Qed.

Lemma vol_cut v : wf v -> vol (loc v) * \prod_i span (axs v i) = vol (glob v).
Proof. by move=> w; rewrite -big_split; apply: eq_bigr => i _; apply: wf_cut. Qed.

Lemma vol_loc_gt0 v : wf v -> 0 < vol (loc v).
Proof. by move=> w; apply: prodn_gt0 => i; apply: wf_loc. Qed.

Lemma vol_copies v : wf v -> vol (glob v) * copies v = ndev sz * vol (loc v).
Proof. by move=> w; rewrite -(vol_cut w) -(cut_copies w); lia. Qed.

Lemma copies_loc v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 -> loc v1 = loc v2 -> copies v1 = copies v2.
Proof.
move=> w1 w2 G L; have : 0 < vol (glob v1) by apply: prodn_gt0 => i; apply: wf_glob.
by move=> g0; apply/eqP; rewrite -(eqn_pmul2l g0) (vol_copies w1) G (vol_copies w2) L eqxx.
Qed.

(** Lemma 5.1. *)
Theorem lemma_5_1 v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 -> loc v1 = loc v2 -> equiv sz v1 v2.
Proof.
move=> w1 w2 G L; apply: perm_of_counts => o.
have cnt v : count (fun h => T v h == o) (enum {: dev}) = #|[pred h : dev | T v h == o]|.
  by rewrite cardE size_filter enumT; apply: eq_count.
rewrite !cnt.
have img : (exists h, T v1 h = o) <-> (exists h, T v2 h = o) by rewrite lemma_4_2 // lemma_4_2 // G L.
case: (pickP [pred h : dev | T v1 h == o]) => [h1 /eqP E1 | no1].
  have [h2 E2] := img.1 (ex_intro _ h1 E1).
  by rewrite -{1}E1 -E2 !card_fibre //; apply: copies_loc.
case: (pickP [pred h : dev | T v2 h == o]) => [h2 /eqP E2 | no2].
  have [h1 E1] := img.2 (ex_intro _ h2 E2).
  by have := no1 h1; rewrite /= E1 eqxx.
by rewrite !eq_card0.
Qed.

(** The converse of Lemma 5.1: with the global shape fixed, the weak class determines the local shape.
    No primality is needed. *)
Theorem lemma_5_1_converse v1 v2 : wf v1 -> wf v2 -> glob v1 = glob v2 -> equiv sz v1 v2 -> loc v1 = loc v2.
Proof.
move=> w1 w2 G [p E].
have img o : (exists h, T v1 h = o) <-> (exists h, T v2 h = o).
  by split=> [[h <-] | [h <-]]; [exists (p^-1%g h); rewrite E permKV | exists (p h)].
apply/ffunP=> i.
have half u1 u2 : wf u1 -> wf u2 -> glob u1 = glob u2 ->
    (forall o, (exists h, T u1 h = o) -> (exists h, T u2 h = o)) -> loc u1 i < glob u1 i -> loc u2 i %| loc u1 i.
  move=> x1 x2 g im lt; pose o : shape r := [ffun k => if k == i then loc u1 i else 0].
  have /im : exists h, T u1 h = o.
    by apply/lemma_4_2 => // k; rewrite ffunE; case: eqP => [->|_]; rewrite ?dvdnn // dvdn0 wf_glob.
  by move/(lemma_4_2 x2)/(_ i); rewrite ffunE eqxx => /andP [].
have top u : wf u -> loc u i %| glob u i /\ loc u i <= glob u i.
  move=> x; rewrite -(wf_cut i x) dvdn_mulr // leq_pmulr // span_gt0 //.
have [d1 l1] := top _ w1; have [d2 l2] := top _ w2.
apply/eqP; rewrite eqn_dvd; apply/andP; split.
  case: (ltnP (loc v2 i) (glob v2 i)) => c2; first by apply: (half v2 v1) => // o /img.
  have -> : loc v2 i = glob v1 i by rewrite G; lia.
  by [].
case: (ltnP (loc v1 i) (glob v1 i)) => c1; first by apply: (half v1 v2) => // o /img.
have -> : loc v1 i = glob v2 i by rewrite -G; lia.
by [].
Qed.

Lemma equiv_refl v : equiv sz v v.
Proof. by exists 1%g => h; rewrite perm1. Qed.

Lemma equiv_sym v1 v2 : equiv sz v1 v2 -> equiv sz v2 v1.
Proof. by move=> [p E]; exists (p^-1)%g => h; rewrite E permKV. Qed.

Lemma equiv_trans v1 v2 v3 : equiv sz v1 v2 -> equiv sz v2 v3 -> equiv sz v1 v3.
Proof. by move=> [p E] [q F]; exists (q * p)%g => h; rewrite F E permM. Qed.
End Types.
