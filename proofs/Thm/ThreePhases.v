(** Beyond the paper: every redistribution has a plan slice, exchange, gather that costs no more than the near-optimal
    sequence of Theorem 6.7 and is no higher than its ends. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel Spec.Exchange.
From Redistrib Require Import Thm.Arith Thm.WeakDiamonds Thm.WeakNormalForm Thm.TypeMeaning Thm.Typing.
From Redistrib Require Import Thm.StrongNormalForm Thm.Lowering Thm.Received.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section ThreePhases.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation ty := (ty n r).
Local Notation dev := (dev sz).
Local Notation wf := (@wf n sz r).
Local Notation asg := (@assignment n sz r).
Local Notation "<| f , v |>" := (@Assign n sz r f v) (at level 0).
Implicit Types (v : ty) (a b x y : asg) (f : {perm dev}) (q : trace asg) (g : shape r) (d : dev).

Let sz_gt0 := sz_gt0 sz_prime.

Lemma gathers_exact w q b y : all is_gather (kinds q) -> lrun w b q y ->
  vol (loc (ltype y)) - vol (loc (ltype b)) <= lcost Exact b q.
Proof.
elim: q b => [|[k x] q IH] b /=; first by move=> _ ->; rewrite subnn.
case: k => // /IH {}IH [_ /IH]; rewrite /lcost /=; set A := vol (loc (ltype y)); set B := vol (loc (ltype x)).
by set C := vol (loc (ltype b)); lia.
Qed.

Lemma gathers_paper w q b y : all is_gather (kinds q) -> lrun w b q y ->
  (if vol (loc (ltype b)) == vol (loc (ltype y)) then 0 else vol (loc (ltype y))) <= lcost Paper b q.
Proof.
elim: q b => [|[k x] q IH] b /=; first by move=> _ ->; rewrite eqxx.
case: k => // /IH {}IH [_ /IH]; rewrite /lcost /=.
case: (eqVneq (vol (loc (ltype x))) (vol (loc (ltype y)))) => [->|ne] le; first by case: ifP; rewrite ?leq_addr.
by apply: leq_trans (leq_trans le (leq_addl _ _)); case: ifP.
Qed.

Lemma lcost_slices w M q a b : all is_slice (kinds q) -> lrun w a q b -> lcost M a q = 0.
Proof. by elim: q a => [|[k x] q IH] a //=; case: k => // /IH {}IH [_ /IH]; rewrite /lcost /=. Qed.

Lemma slices_sub w q a b d : wf (ltype a) -> all is_slice (kinds q) -> lrun w a q b ->
  tile (glob (ltype a)) b d \subset tile (glob (ltype a)) a d.
Proof.
move=> wa K R; have := lower_bound sz_prime d wa R; rewrite (lcost_slices _ K R) leqn0 cards_eq0 setD_eq0.
exact.
Qed.

Lemma gathers_sub w q a b d : wf (ltype a) -> all is_gather (kinds q) -> lrun w a q b ->
  tile (glob (ltype a)) a d \subset tile (glob (ltype a)) b d.
Proof.
elim: q a => [|[k x] q IH] a wa /=; first by move=> _ ->.
case: k => // K [st R]; have [wx gx] := lstep_wf wa st.
have := IH _ wx K R; rewrite gx; apply: subset_trans.
case: st => i [xs [okx ux sx P S]]; rewrite {1}/tile P.
exact: gather_sub (bring_wf wa ux sx) S.
Qed.

Lemma middle_vol w q a b : wf (ltype a) -> all is_middle (kinds q) -> lrun w a q b ->
  vol (loc (ltype b)) = vol (loc (ltype a)).
Proof.
elim: q a => [|[k x] q IH] a wa /=; first by move=> _ ->.
move=> /andP [kM K] [st R]; have [wx gx] := lstep_wf wa st; rewrite (IH _ wx K R).
case: k kM st => // _ st; first exact: (wstep_vol_middle (k := AllToAll) isT (lstep_wstep sz_prime wa _ st)).
by rewrite (lemma_5_1_converse sz_gt0 wa wx (esym gx) (lpermute_equiv st)).
Qed.

(** From [a], the sliced source, to [b], the target before its gathers, one exchange at equal tile volume. Its cost is
    compared with that of a sequence as in Theorem 6.7 sharpened, hence with the optimum. *)
Theorem slice_exchange_gather w f v1 v2 q : wf v1 -> lrun w <|f, v1|> q <|f, v2|> ->
  exists qs a qa b qg,
    [/\ [/\ lrun w <|f, v1|> qs a, all is_slice (kinds qs) & forall d, tile (glob v1) a d \subset tile (glob v1) <|f, v1|> d],
        vol (loc (ltype b)) = vol (loc (ltype a)) /\ vol (loc (ltype a)) <= minn (vol (loc v1)) (vol (loc v2)),
        [/\ lrun w b qg <|f, v2|>, all is_gather (kinds qg) & forall d, tile (glob v1) b d \subset tile (glob v1) <|f, v2|> d],
        lrun w <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg) <|f, v2|> &
        forall M, three_phase_cost (glob v1) M a b (loc v2) <= lcost M <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg)
                  /\ lcost M <|f, v1|> (qs ++ qa ++ (AllPermute, b) :: qg)
                     <= lcost M <|f, v1|> q + minn (vol (loc v1)) (vol (loc v2))].
Proof.
move=> w1 R0; have [qs [qa [b [qg [R [Ks Ka Kg] _ C]]]]] := near_optimality_sharp sz_prime w1 R0.
have [a [Rs R1]] := run_split R; have [a2 [Ra R2]] := run_split R1; case: R2 => P Rg.
have [wa /= ga] := lrun_wf (a := <|f, v1|>) w1 Rs.
have Ka' : all is_middle (kinds qa) by apply: sub_all Ka => k; rewrite /is_middle => ->.
have [wa2 ga2] := lrun_wf wa Ra; have [wb gb] := lstep_wf wa2 P.
have Va2 := middle_vol wa Ka' Ra.
have Lb : loc (ltype b) = loc (ltype a2).
  by rewrite (lemma_5_1_converse sz_gt0 wa2 wb (esym gb) (lpermute_equiv P)).
have gb1 : glob (ltype b) = glob v1 by rewrite gb ga2 ga.
have subs d : tile (glob v1) a d \subset tile (glob v1) <|f, v1|> d := slices_sub d (a := <|f, v1|>) w1 Ks Rs.
have subg d : tile (glob v1) b d \subset tile (glob v1) <|f, v2|> d by rewrite -gb1; apply: gathers_sub Kg Rg.
have [w2 /= g2] := lrun_wf (a := <|f, v1|>) w1 R0.
exists qs, a, qa, b, qg; split=> //.
  rewrite Lb Va2; split=> //; rewrite leq_min; apply/andP; split.
    by have := subset_leq_card (subs (dev0 sz_gt0)); rewrite !card_tile.
  rewrite -Va2 -Lb; have := subset_leq_card (subg (dev0 sz_gt0)); rewrite !card_tile //.
move=> M; split; last exact: C.
rewrite (lcost_cat _ _ Rs) (lcost_slices _ Ks Rs) add0n (lcost_cat _ _ Ra).
have -> : lcost M a2 ((AllPermute, b) :: qg) = vol (loc (ltype a2)) + lcost M b qg by [].
case: M => /=.
  by rewrite Lb addnA; apply: leq_add; [exact: leq_addl | rewrite -Lb; exact: gathers_paper Kg Rg].
rewrite addnA; apply: leq_add; last exact: gathers_exact Kg Rg.
apply/bigmax_leqP => d _.
have Rm : lrun w a (qa ++ [:: (AllPermute, b)]) b by apply: run_cat Ra _.
rewrite -ga; apply: leq_trans (lower_bound sz_prime d wa Rm) _.
by rewrite (lcost_cat _ _ Ra) /lcost /= addn0.
Qed.

(** Such a redistribution always exists, under every device map. *)
Theorem redistribution_exists w f v1 v2 : wf v1 -> wf v2 -> glob v2 = glob v1 ->
  exists q, lrun w <|f, v1|> q <|f, v2|>.
Proof.
move=> w1 w2 G; have [q [R _ _]] := memory_constrained_solvable sz_prime w w1 w2 G.
by exists (at_map f q); apply: lrun_typed R.
Qed.
End ThreePhases.
