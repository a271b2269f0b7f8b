(** What devices receive: the lower bound, the direct plan, and the three phases. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel Spec.Exchange.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing.
From Redistrib Require Import Thm.StrongNormalForm Thm.Lowering.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Lemma card_interval (m o c : nat) : o + c <= m -> #|[pred k : 'I_m | (o <= k) && (k < o + c)]| = c.
Proof.
move=> le; rewrite -sum1_card big_mkcond /=.
rewrite -(big_mkord xpredT (fun k => if (o <= k) && (k < o + c) then 1 else 0)).
rewrite (@big_cat_nat _ _ _ o) //=; last by lia.
rewrite (@big_cat_nat _ _ _ (o + c) o) //=; last by lia.
rewrite big_nat big1 => [|k]; last by move=> /andP [_ H]; case: ifP => //; lia.
rewrite big_nat (eq_bigr (fun=> 1)) => [|k H]; last by rewrite H.
rewrite -big_nat sum_nat_const_nat big_nat big1 => [|k]; first by lia.
by move=> /andP [H _]; case: ifP => //; lia.
Qed.

Section Received.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation dev := (dev sz).
Local Notation wf := (@wf n sz r).
Local Notation span := (span sz).
Local Notation asg := (@assignment n sz r).
Local Notation "<| f , v |>" := (@Assign n sz r f v) (at level 0).
Implicit Types (v u : ty) (a b : asg) (f : {perm dev}) (i j : 'I_r) (xs ys : seq 'I_n) (c o g : shape r) (d h : dev).

Let sz_gt0 := sz_gt0 sz_prime.

(** ** Boxes *)
Lemma card_box g o c : (forall i, o i + c i <= g i) -> #|box g o c| = vol c.
Proof.
move=> le; pose F i : pred 'I_(g i) := [pred k : 'I_(g i) | (o i <= k) && (k < o i + c i)].
rewrite (eq_card (B := family F : simpl_pred (elem g))); last first.
  by move=> e; rewrite [LHS]inE [RHS]unfold_in; apply/forallP/familyP => H i; have := H i; rewrite ?inE.
rewrite card_family foldrE big_map big_enum /=; apply: eq_bigr => i _; exact: card_interval.
Qed.

Lemma box_sub g o c o' c' : (forall i, o' i <= o i /\ o i + c i <= o' i + c' i) -> box g o c \subset box g o' c'.
Proof.
move=> H; apply/subsetP=> e; rewrite !inE => /forallP E; apply/forallP=> i.
by have := E i; have := H i; lia.
Qed.

Lemma T_fits v h i : wf v -> T v h i + loc v i <= glob v i.
Proof. by move=> w; rewrite ffunE -(wf_cut i w); apply: doff_lt => //; apply: wf_loc w. Qed.

Lemma place_fits a d i : wf (ltype a) -> place a d i + loc (ltype a) i <= glob (ltype a) i.
Proof. exact: T_fits. Qed.

Lemma card_tile g a d : wf (ltype a) -> glob (ltype a) = g -> #|tile g a d| = vol (loc (ltype a)).
Proof. by move=> w <-; apply: card_box => i; apply: place_fits. Qed.

(** ** Offsets when minor axes go *)
Lemma doff_cat (c0 : nat) xs ys h : doff c0 (xs ++ ys) h = doff c0 xs h + doff (c0 * span xs) ys h.
Proof.
elim: xs c0 => [|x xs IH] c0 /=; first by rewrite span_nil muln1.
by rewrite IH addnA span_cons mulnA.
Qed.

Lemma doff_prefix (c0 : nat) xs ys h : 0 < c0 ->
  doff (c0 * span xs) ys h <= doff c0 (xs ++ ys) h /\
  doff c0 (xs ++ ys) h + c0 <= doff (c0 * span xs) ys h + c0 * span xs.
Proof. by move=> c00; rewrite doff_cat; have := doff_lt sz_gt0 xs h c00; lia. Qed.

Lemma gather_sub g i xs v v' h : wf v -> gather_rule sz i xs v v' ->
  box g (T v h) (loc v) \subset box g (T v' h) (loc v').
Proof.
move=> w [ys [E ->]]; apply: box_sub => k; rewrite /= !ffunE /= ?ffunE; case: (eqVneq k i) => [->|_] //.
by rewrite E; apply: doff_prefix; apply: wf_loc w.
Qed.

Lemma alltoall_meet g i j xs v v' h : wf v -> glob v = g -> alltoall_rule sz i j xs v v' ->
  exists c, [/\ #|box g (T v' h) (loc v') :&: box g (T v h) (loc v)| >= vol c,
                i != j, loc v = mul j (span xs) c & loc v' = mul i (span xs) c].
Proof.
move=> w gv R; have w' := alltoall_wf w R; case: R => ys [c [ij E L Ev']].
have Lv' : loc v' = mul i (span xs) c by rewrite Ev'.
exists c; split=> //.
have c0 k : 0 < c k.
  by have := wf_loc k w; rewrite L ffunE; case: eqP => // _; rewrite muln_gt0 => /andP [].
have Ec k : k != j -> loc v k = c k by rewrite L ffunE => /negPf ->.
pose o : shape r := [ffun k => if k == j then T v' h j else T v h k].
have ji : (j == i) = false by rewrite eq_sym (negPf ij).
have Lj : loc v j = c j * span xs by rewrite L ffunE eqxx.
have L'j : loc v' j = c j by rewrite Lv' ffunE ji.
have L'i : loc v' i = c i * span xs by rewrite Lv' ffunE eqxx.
have A'j : axs v' j = xs ++ axs v j by rewrite Ev' /= upd_same.
have A'i : axs v' i = ys by rewrite Ev' /= upd_other // upd_same.
have L'k k : k != i -> loc v' k = c k by move=> ki; rewrite Lv' ffunE (negPf ki).
have A'k k : k != i -> k != j -> axs v' k = axs v k.
  by move=> ki kj; rewrite Ev' /= upd_other // upd_other.
have in_v k : T v h k <= o k /\ o k + c k <= T v h k + loc v k.
  rewrite !ffunE; case: (eqVneq k j) => [->|kj]; last by rewrite Ec.
  by rewrite L'j A'j Lj; apply: doff_prefix.
have in_v' k : T v' h k <= o k /\ o k + c k <= T v' h k + loc v' k.
  rewrite !ffunE; case: (eqVneq k j) => [->|kj]; first by rewrite L'j.
  case: (eqVneq k i) kj => [->|ki] kj; last by rewrite L'k // A'k // Ec.
  by rewrite L'i A'i E Ec //; apply: doff_prefix.
rewrite -(@card_box g o c) => [|k]; last first.
  by case: (in_v k) => _ le; apply: leq_trans le _; rewrite -gv; apply: T_fits.
by apply: subset_leq_card; rewrite subsetI !box_sub.
Qed.

(** ** The exact price of a step is no less than what any device receives *)
Theorem exact_price_covers_received w k a b d : wf (ltype a) -> lstep w k a b ->
  received (glob (ltype a)) a b d <= price Exact k (loc (ltype a)) (loc (ltype b)).
Proof.
set g := glob (ltype a) => wa st; have [wb gb] := lstep_wf wa st; rewrite /received.
have card_b := card_tile d wb gb; have card_a : #|tile g a d| = _ := card_tile d wa erefl.
case: k st => /= st.
- case: st => Ed [i [xs [_ R]]].
  have /subset_trans : tile g b d \subset tile g a d.
    by rewrite /tile /place -Ed; apply: gather_sub wb (slice_rev R).
  by move=> sub; rewrite leqn0 cards_eq0 setD_eq0; apply: sub.
- case: st => i [j [xs [okx ux sx P R]]]; have wv := bring_wf wa ux sx.
  have [c [le ij La Lb]] := alltoall_meet ((dmap b)^-1%g d) wv (erefl _) R.
  rewrite cardsD card_b; have -> : vol (loc (ltype b)) = vol (loc (ltype a)).
    by rewrite Lb -[loc (ltype a)]/(loc (bring i xs (ltype a))) La !vol_mul.
  apply: leq_sub2l; have -> : tile g a d = box g (T (bring i xs (ltype a)) ((dmap b)^-1%g d)) (loc (ltype a)).
    by rewrite /tile P.
  apply: leq_trans le; have -> : meet (loc (ltype a)) (loc (ltype b)) = c; last by [].
  have m0 := span_gt0 sz_gt0 xs; rewrite Lb -[loc (ltype a)]/(loc (bring i xs (ltype a))) La.
  apply/ffunP=> k; rewrite !ffunE; case: (eqVneq k j) => [->|_].
    by rewrite eq_sym (negPf ij); apply/minn_idPr; rewrite leq_pmulr.
  by case: eqP => _; apply/minn_idPl; rewrite // leq_pmulr.
- have E := lemma_5_1_converse sz_gt0 wa wb (esym gb) (lpermute_equiv (w := w) st).
  apply: (@leq_trans #|tile g b d|); first by apply: subset_leq_card; apply: subsetDl.
  by rewrite card_b E.
case: st => i [xs [okx ux sx P R]]; have wv := bring_wf wa ux sx.
have sub : tile g a d \subset tile g b d.
  by rewrite {1}/tile P; apply: gather_sub wv R.
by rewrite cardsD (setIidPr sub) card_b card_a.
Qed.

Lemma received_triangle g a b e d : received g a e d <= received g a b d + received g b e d.
Proof.
rewrite /received; apply: leq_trans (_ : #|(tile g b d :\: tile g a d) :|: (tile g e d :\: tile g b d)| <= _).
  apply: subset_leq_card; apply/subsetP=> x; rewrite in_setU !in_setD => /andP [-> ->].
  by case: (x \in tile g b d).
by rewrite cardsU leq_subr.
Qed.

(** No sequence costs less than what some device lacks: the information-theoretic lower bound, exact model. *)
Theorem lower_bound w q a b d : wf (ltype a) -> lrun w a q b ->
  received (glob (ltype a)) a b d <= lcost Exact a q.
Proof.
elim: q a => [|[k x] q IH] a wa /=; first by move=> <-; rewrite /received setDv cards0.
move=> [st R]; have [wx gx] := lstep_wf wa st; apply: leq_trans (received_triangle _ _ x _ _) _.
rewrite /lcost /=; apply: leq_add; first exact: exact_price_covers_received st.
by rewrite -gx; apply: IH.
Qed.

(** ** The direct plan *)
(** Every element is somewhere: the tiles of a type cover the array. *)
Lemma covered a (e : elem (glob (ltype a))) : wf (ltype a) -> exists d, e \in tile (glob (ltype a)) a d.
Proof.
move=> w; pose o : shape r := [ffun i => e i %/ loc (ltype a) i * loc (ltype a) i].
have [h Eh] : exists h : dev, T (ltype a) h = o.
  apply/(lemma_4_2 sz_gt0 w) => i; rewrite ffunE dvdn_mull //=.
  by apply: leq_ltn_trans (leq_trunc_div _ _) (ltn_ord (e i)).
exists (dmap a h); rewrite inE; apply/forallP=> i; rewrite /place permK Eh ffunE leq_trunc_div /=.
by rewrite [X in _ < X]addnC -mulSn; apply: ltn_ceil; apply: wf_loc w.
Qed.

(** The direct plan: one exchange from source to target in which every device keeps what it has, pulls exactly what it
    lacks, each element from a device that holds it, and ends with its target tile. It receives the lower bound. *)
Theorem direct_plan a b : wf (ltype a) -> wf (ltype b) -> glob (ltype b) = glob (ltype a) ->
  let g := glob (ltype a) in
  exists sender : dev -> elem g -> dev,
    forall d, let pulled := [set e in tile g b d | e \notin tile g a d] in
      [/\ forall e, e \in pulled -> e \in tile g a (sender d e),
          tile g b d = (tile g a d :&: tile g b d) :|: pulled &
          #|pulled| = received g a b d].
Proof.
move=> wa wb gb g.
have ex (e : elem g) : [exists d, e \in tile g a d] by apply/existsP; apply: covered.
exists (fun _ e => xchoose (existsP (ex e))) => d; split.
- by move=> e _; apply: (xchooseP (existsP (ex e))).
- by apply/setP=> e; rewrite in_setU in_setI in_set; case: (e \in tile g a d); case: (e \in tile g b d).
by apply: eq_card => e; rewrite in_set in_setD andbC.
Qed.
End Received.
